"""`python -m gcpsl`, as torchrun starts it."""

from gcpsl.cli import main

main()
