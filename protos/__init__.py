"""The control plane's messages: .proto files and the modules generated from them (./dev protos)."""
