"""A controller is paused at each of its writes and requests, and resumed when another rules: it changes nothing."""
