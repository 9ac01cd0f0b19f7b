"""For plugins that read and write places: folders and prefixes of object stores."""

from dpdist.errors import StoreError
from dpdist.storage.objects import Missing, StorageLocation, parse_location
from dpdist.storage.objects.bucket import Bucket, probe_name

__all__ = ["Bucket", "Missing", "StorageLocation", "StoreError", "parse_location", "probe_name"]
