"""To and from other libraries' ragged data, one file per library; their packages are imported only when used."""
