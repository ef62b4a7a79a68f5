"""Who acts: the driver's threads around the ledger. Facts from Spark and the store go in, decisions are carried out."""
