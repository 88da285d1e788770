"""What the formats share: zip and protobuf records, pickles read without running them, headers checked."""
