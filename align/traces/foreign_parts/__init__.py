"""What the readers of other tools' dumps share: folders, tensors in files, figures, names of layer classes."""
