"""Files of samples: read as a stream, and their tokens counted or estimated."""
