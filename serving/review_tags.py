"""Tags of a model version by which a reviewer decides in the registry (serving/reviews.py).

Anyone who can write to the registry can write them: what they ask for is done only for a version that passed its gates.
"""

REVIEW_TAG = "assay.review"  # approve or reject
BY_TAG = "assay.review.by"  # who says so: the registry does not tell who wrote a tag
COMMENT_TAG = "assay.review.comment"
DONE_TAG = "assay.review.done"  # the answer; the three above are removed then
WAITS_TAG = "waits_for"  # of the challenger
WAITS_FOR = f"a review: set the tag {REVIEW_TAG} to approve or reject"
