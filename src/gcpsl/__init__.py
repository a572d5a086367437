"""gcpsl: clustered parallel split learning across devices that keep their data."""

__version__ = "0.1.0"
