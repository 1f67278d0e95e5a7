package configs

import "testing"

// worlds is the number of servers that TestArbitraryConfigsAnswerEachRequestOnce starts.
const worlds = 100

// TestArbitraryConfigsAnswerEachRequestOnce combines random configs, requests and model responses.
// Each request must get exactly one reply. Nothing may panic, and no block may stay lent.
func TestArbitraryConfigsAnswerEachRequestOnce(t *testing.T) {
	served, made, good := 0, 0, int64(0)
	for seed := range uint64(worlds) {
		s, m, g := live(t, seed, 12)
		served, made, good = served+s, made+m, good+g
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d of %d configs were valid, %d requests got an answer without an error", served, made, good)
	if served < made/2 || good < 10*worlds {
		t.Errorf("%d of %d configs were valid, want half; %d requests got an answer without an error, want 10 in each of %d worlds", served, made, good, worlds)
	}
}

// FuzzConfigs runs the same checks with seeds from the fuzzer.
func FuzzConfigs(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { live(t, seed, 12) })
}
