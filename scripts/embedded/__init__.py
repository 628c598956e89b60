"""Makes the embedded draft/target pair: texts, tokenizer, training, distillation, export."""
