from tests.shared.os_service.machine import machine

__all__ = ["machine"]
