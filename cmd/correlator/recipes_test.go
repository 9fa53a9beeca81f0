package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// recipes are the files that docs/first-hour.md uses.
const recipes = "../../deploy/recipes"

// The correlator takes its files, which send to where the Collector's receive.
func TestRecipesOfCorrelator(t *testing.T) {
	for file, endpoint := range map[string]string{
		"correlator-collector.yaml": "http://127.0.0.1:4317",
		"correlator-pyroscope.yaml": "http://127.0.0.1:4040",
	} {
		path := filepath.Join(recipes, file)
		printed := string(command(t, "", "run", "--print-config", "--config", path))
		for _, want := range []string{"endpoint: " + endpoint, "otlp-untraced: true"} {
			if !strings.Contains(printed, want) {
				t.Errorf("%s: no %q in\n%s", file, want, printed)
			}
		}
	}
}

// collectorConfig is the part of a Collector's file that says how it is put together.
type collectorConfig struct {
	Receivers map[string]struct {
		Protocols map[string]struct {
			Endpoint string `yaml:"endpoint"`
		} `yaml:"protocols"`
	} `yaml:"receivers"`
	Exporters map[string]any `yaml:"exporters"`
	Service   struct {
		Pipelines map[string]struct {
			Receivers []string `yaml:"receivers"`
			Exporters []string `yaml:"exporters"`
		} `yaml:"pipelines"`
	} `yaml:"service"`
}

// Files of the Collector receive OTLP where the correlator sends it, from this host alone, since they
// ask for no credentials. They have a pipeline for profiles, all of whose components are defined.
func TestRecipesOfCollector(t *testing.T) {
	for _, file := range []string{"collector.yaml", "elasticsearch.yaml"} {
		text, err := os.ReadFile(filepath.Join(recipes, file))
		if err != nil {
			t.Fatal(err)
		}
		var config collectorConfig
		if err := yaml.Unmarshal(text, &config); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if endpoint := config.Receivers["otlp"].Protocols["grpc"].Endpoint; endpoint != "127.0.0.1:4317" {
			t.Errorf("%s: receives at %q", file, endpoint)
		}
		if _, ok := config.Service.Pipelines["profiles"]; !ok {
			t.Errorf("%s: no pipeline for profiles", file)
		}
		for signal, pipeline := range config.Service.Pipelines {
			for _, name := range pipeline.Receivers {
				if _, ok := config.Receivers[name]; !ok {
					t.Errorf("%s: %s: no receiver %q", file, signal, name)
				}
			}
			for _, name := range pipeline.Exporters {
				if _, ok := config.Exporters[name]; !ok {
					t.Errorf("%s: %s: no exporter %q", file, signal, name)
				}
			}
		}
	}
}

// The page uses every file, and only those that there are.
func TestRecipesInPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/first-hour.md")
	if err != nil {
		t.Fatal(err)
	}
	named := make(map[string]bool)
	for _, match := range regexp.MustCompile(`deploy/recipes/([a-z-]+\.yaml)`).FindAllSubmatch(page, -1) {
		named[string(match[1])] = true
	}
	files, err := os.ReadDir(recipes)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !named[file.Name()] {
			t.Errorf("the page does not name %s", file.Name())
		}
		delete(named, file.Name())
	}
	if len(named) > 0 {
		t.Errorf("the page names %v", named)
	}
}
