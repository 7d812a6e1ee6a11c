"""The model compared with a real server: random scripts, played on both, told apart by whatever a client can see."""
