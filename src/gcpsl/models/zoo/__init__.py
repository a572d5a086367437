"""The built-in models, one file per family, each made by `function(input_shape, classes)`."""
