package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestChartIsUpToDate checks that the README's charts match the program's output and that their
// figures appear in docs/performance.md.
func TestChartIsUpToDate(t *testing.T) {
	directory := t.TempDir()
	if err := write(directory); err != nil {
		t.Fatal(err)
	}
	for _, theme := range themes {
		name := "triton-" + theme.name + ".svg"
		drawn, err := os.ReadFile(filepath.Join(directory, name))
		if err != nil {
			t.Fatal(err)
		}
		if kept, err := os.ReadFile(filepath.Join("../../docs/images", name)); err != nil || string(kept) != string(drawn) {
			t.Errorf("docs/images/%s is out of date (error %v): go run ./bench/chart docs/images", name, err)
		}
	}
	page, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(page), ",", "")
	for line := range strings.Lines(figures[strings.Index(figures, "\n")+1:]) {
		fields := strings.Split(strings.TrimSpace(line), ",")
		for _, rate := range fields[len(fields)-2:] {
			if !strings.Contains(text, "| "+rate+" |") {
				t.Errorf("docs/performance.md does not have the rate %s of %s", rate, line)
			}
		}
	}
}
