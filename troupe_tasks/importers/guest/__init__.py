"""What runs in the process of an importer, by an interpreter that has no Troupe: standard library
alone, and the package whose environments it serves."""
