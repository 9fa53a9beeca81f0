// Gen writes docs/metrics.md, from the metrics' help texts and metrics.yaml, and docs/alerts.md, from
// deploy/prometheus/alerts.yaml. Run it by go generate ./internal/operate/metrics/...
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

//go:generate go run . ../../../..

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// run writes the pages below root, the directory of the repository.
func run(root string) error {
	families, err := gatherAll()
	if err != nil {
		return err
	}
	metrics, err := metricsPage(families)
	if err != nil {
		return err
	}
	alerts, err := readAlerts(filepath.Join(root, "deploy/prometheus/alerts.yaml"))
	if err != nil {
		return err
	}
	for page, text := range map[string]string{"metrics.md": metrics, "alerts.md": alertsPage(alerts)} {
		if err := os.WriteFile(filepath.Join(root, "docs", page), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
