"""Room `problems`."""
