"""Fields and types of the registry of deployments, after its template of September 2026."""

TEXT = {"type": "string"}
NUMBER = {"type": "number"}


def one_of(*values):
    return {"type": "string", "enum": [*values]}


def fields(required=(), **properties):
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [*required],
        "properties": properties,
    }


def texts(*names):
    return dict.fromkeys(names, TEXT)


def listed(item):
    return {"type": "array", "items": item, "minItems": 1}


def schema():
    """Return the schema of a complete entry."""
    curator = texts("data_curator_name", "data_curator_type")
    kinds = ("Summary statistics", "Machine learning model", "Dataset", "Synthetic data")
    sections = {
        "basic": fields(
            [
                *("name", "data_curators", "description", "intended_use", "data_product_type"),
                *("data_product_region", "publication_date"),
            ],
            **texts("name", "description", "intended_use"),
            **texts("data_product_region", "data_product_sector"),
            data_curators=listed(fields(curator, **curator)),
            data_product_type=one_of(*kinds),
            publication_date={"type": "string", "format": "date"},
        ),
        "dp_variant": fields(
            ["variant_name", "unprotected_quantities", "data_domain"],
            variant_name=one_of("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP"),
            **texts("data_domain", "unprotected_quantities"),
        ),
        "privacy_loss": fields(
            ["privacy_unit", "privacy_parameters"],
            **texts("privacy_unit", "privacy_unit_details", "privacy_parameters_details"),
            number_of_privacy_units=NUMBER,
            privacy_parameters=fields(["epsilon", "delta"], epsilon=NUMBER, delta=NUMBER),
        ),
        "deployment_model": fields(
            ["model_name"],
            model_name=one_of("Local", "Central", "Shuffle", "Federated"),
            **texts("model_name_details", "trust_assumptions", "actors"),
            release_type=one_of("One release", "Many releases"),
            **texts("release_type_details", "data_source_type_details", "access_type_details"),
            data_source_type=one_of("Static", "Dynamic"),
            access_type=one_of("Interactive", "Non-interactive"),
        ),
        "implementation": fields(
            [
                *("preprocessing_and_hyperparameter_tuning", "justification"),
                *("mechanisms", "composition", "post_processing"),
            ],
            **texts("preprocessing_and_hyperparameter_tuning", "mechanisms", "composition"),
            **texts("post_processing", "justification", "utility", "additional_information"),
        ),
        "administrative": fields(
            ["registry_authors", "status", "tier"],
            evidence_sources={"type": "object"},
            status=one_of("Draft", "Pending", "Approved"),
            registry_authors=listed(TEXT),
            tier={"type": "integer", "enum": [1, 2, 3]},
        ),
    }
    return fields(
        ["deployment", "url_slug"],
        url_slug={"type": "string", "pattern": "^[a-z0-9-]+$"},
        deployment=fields(sections, **sections),
    )
