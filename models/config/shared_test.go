package config

import (
	"testing"

	"github.com/nereid-serving/nereid/kserve"
)

// CheckConfig processes a parsed config like a load and checks that its JSON form is stable.
func CheckConfig(t *testing.T, config *kserve.ModelConfig) {
	if err := autofill(config, "m", []File{{Name: "model.py"}}); err != nil {
		return
	}
	normalise(config)
	normaliseGroups(config, nil)
	again := Clone(config)
	normalise(again)
	normaliseGroups(again, nil)
	shown, twice := JSON(config), JSON(again)
	if string(shown) != string(twice) {
		t.Fatalf("normalised twice:\n got %s\nwant %s", twice, shown)
	}
	_ = validate(config)
	_ = validateTensors(config)
	_ = Rules{}.CheckGroups(config)
	back, err := ParseJSON(shown)
	if err != nil {
		t.Fatalf("the JSON form is refused: %v\n%s", err, shown)
	}
	if third := JSON(back); string(third) != string(shown) {
		t.Fatalf("parsed and shown again:\n got %s\nwant %s", third, shown)
	}
}
