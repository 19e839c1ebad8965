"""The commands of ./dev. Modules make command lines; processes.py alone starts processes."""
