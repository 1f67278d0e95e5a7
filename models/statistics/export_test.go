package statistics

import "github.com/nereid-serving/nereid/kserve"

// MostBatchSizes, MostIndices and Proto are exported for the tests in package statistics_test.

const MostBatchSizes = mostBatchSizes

const MostIndices = mostIndices

func (s *Responses) Proto() map[string]*kserve.InferResponseStatistics { return s.proto() }
