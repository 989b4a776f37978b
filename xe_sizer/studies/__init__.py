"""Questions asked many times: plans, fleets, comparisons, sensitivities, scaling, sweeps."""
