"""Audits: are the replicas of somebody's cluster already diverged?"""
