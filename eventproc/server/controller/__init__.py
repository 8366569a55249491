"""The controller of Pravega over gRPC."""
