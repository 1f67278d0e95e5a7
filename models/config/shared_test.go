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
	shown, err := JSON(config)
	if err != nil {
		t.Fatal(err)
	}
	twice, err := JSON(again)
	if err != nil {
		t.Fatal(err)
	}
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
	if third, err := JSON(back); err != nil || string(third) != string(shown) {
		t.Fatalf("parsed and shown again (%v):\n got %s\nwant %s", err, third, shown)
	}
}
