"""A fleet of slots and a run on it over virtual time: the real placements, planner, rates and admission rules, moved by
discrete events instead of processes. Numbers that stand for hardware come from a `Workload`.
"""
