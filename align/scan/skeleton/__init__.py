"""A port's layers written in MindSpore from what a torch model is made of."""
