from tests.shared.service.machine import machine

__all__ = ["machine"]
