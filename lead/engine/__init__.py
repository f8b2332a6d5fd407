"""The engine process: it owns the target model and loops over plan, decode and commit."""
