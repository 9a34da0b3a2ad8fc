"""What-if: which way of training would cope best with the workers of a log?"""
