"""What the DDL statements of a log do to the catalogue, and the events that tell it. Pure: text in, values out."""
