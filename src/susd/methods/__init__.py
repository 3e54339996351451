"""What makes one method differ from another, one file each."""
