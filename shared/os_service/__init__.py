"""Services of systemd and launchd: `lead service` and `back service`."""
