"""A simulated cluster: agents and controllers assembled from production parts."""
