"""onewrite for Django: `"ENGINE": "onewrite.django"` in DATABASES."""
