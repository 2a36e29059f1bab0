"""Bundles: a user's files in one archive that its digest names, and what is known of its task.

Owns the archive's format and its limits. Imports the SDK's rooms below it and no service.
"""

from troupe.bundles.archive import Bundle, build_bundle, bundle_of, read_bundle, unpack
from troupe.bundles.describe import with_bundle

__all__ = ["Bundle", "build_bundle", "bundle_of", "read_bundle", "unpack", "with_bundle"]
