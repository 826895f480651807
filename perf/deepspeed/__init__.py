"""Decks from configurations of DeepSpeed. Nothing of DeepSpeed itself."""
