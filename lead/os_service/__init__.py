"""The ring for `lead service` and `lead uninstall`."""
