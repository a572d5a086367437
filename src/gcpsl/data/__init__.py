"""Data sets, and how they are dealt to clients.

Not imported here, because they bring what most callers don't need: `gcpsl.data.device` (torch), `gcpsl.data.download`
(the network) and `gcpsl.data.show` (drawing).
"""

from gcpsl.data.dataset import Dataset, Samples
from gcpsl.data.federation import FederatedData, federate
from gcpsl.data.map_style import from_torch
from gcpsl.data.partitions import Partition, partition
from gcpsl.data.sources import load

__all__ = ["Dataset", "FederatedData", "Partition", "Samples", "federate", "from_torch", "load", "partition"]
