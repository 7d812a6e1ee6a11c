"""`./dev compose-test`: docker-compose.yml on a real engine, broken on purpose and watched by its own Prometheus."""
