"""The parts of the documentation that follow from the code: `make docs` writes them, a test checks them."""
