"""Generated from proto/ by `make generate`; never edited. Imports protobuf and gRPC alone."""
