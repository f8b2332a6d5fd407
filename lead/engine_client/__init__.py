"""The front's side of the engine: starts it, sends commands, keeps the committed tokens."""
