"""The controller daemon: elects, decides, fences, steers. Imported as regency.controller."""
