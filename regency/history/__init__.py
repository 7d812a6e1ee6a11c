"""Decision records: written where a decision is made, merged and read by people and by the judge."""
