"""Does the simulator predict real runs?"""
