"""What is worth a picture in an answer: values, names and units, one module per kind of answer."""
