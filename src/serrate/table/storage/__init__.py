"""Tables in files, on this machine or in remote stores: the format, reading untrusted files, and safe writing."""
