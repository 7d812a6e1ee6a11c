"""`regency top`: the cluster at a glance, drawn again and again."""
