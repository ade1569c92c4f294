"""How the tiny calculator model is made: demonstrations, tokenizer, warm-up. Offline tools, not imported at run time."""
